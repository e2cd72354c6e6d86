"""Answers to questions that people ask; `python -m examples.<name>`."""

"""Pages that show runs without a server: one file each, no script.

    history   the lines of metrics.jsonl as columns
    facts     what run.json says, in words
    panels    which charts there are
    thin      a line of a million points with a few hundred
    chart     lines drawn as SVG, by Matplotlib
    document  pieces of HTML
    page      one run: `<model_dir>/report.html`
    compare   several runs on the same charts
    write     from folders to a page in a file

    python -m training.report runs/a                 # runs/a/report.html
    python -m training.report runs/a runs/b          # compare.html

The callback `report` writes the first while a run is going on.
"""

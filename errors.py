"""The one exception type for a wrong request."""


class RequestError(ValueError):
    """The user asked for something that cannot be done.

    Raised for a bad flag, cluster description, data path or model option. Its
    message is one sentence for the user: what was received, what is allowed,
    what to do. `train.main` prints it and exits with code 2; every other
    exception is a fault of the program and keeps its traceback.
    """

"""Exceptions of Consort; each message is one sentence that says what is wrong and what to do."""

from __future__ import annotations


class ConsortError(Exception):
    """The base class of all errors that users are told without a traceback.

    `exit_code` is the exit status of the command that ends with the error.

    Examples:
        >>> from consort import ConsortError, Failure
        >>> try:
        ...     raise Failure("results.json is missing: run the experiment again")
        ... except ConsortError as error:
        ...     print(error, error.exit_code)
        results.json is missing: run the experiment again 1
    """

    exit_code = 1


class UsageError(ConsortError):
    """The request is wrong: for example a misspelt key, or models that cannot be averaged.

    Examples:
        >>> from consort import ModelSpec, UsageError
        >>> try:
        ...     ModelSpec.of({"name": "mlp", "hiden": [64]})
        ... except UsageError as error:
        ...     print(error)  # doctest: +ELLIPSIS
        model 'mlp' has no option 'hiden': did you mean 'hidden'? ...
    """

    exit_code = 2


class Failure(ConsortError):
    """The request is valid, but carrying it out failed.

    Examples:
        >>> from consort import ConsortError, Failure
        >>> issubclass(Failure, ConsortError), Failure.exit_code
        (True, 1)
    """


class Interrupted(Failure):
    """A run was asked to stop, and can be continued: a batch system may start it again.

    Examples:
        >>> from consort.errors import Interrupted
        >>> Interrupted.exit_code  # EX_TEMPFAIL
        75
    """

    exit_code = 75


class ClientFailed(Failure):
    """A client raised an error.

    Args:
        client: The name of the client.
        reason: What happened, in one sentence.
        traceback: The traceback on the client, if known.
    """

    def __init__(self, client: str, reason: str, traceback: str = "") -> None:
        super().__init__(f"client {client}: {reason}")
        self.client = client
        self.reason = reason
        self.traceback = traceback


class Tellable(Failure):
    """A failure that a client may report to the server of a federation, word for word.

    Its text says nothing about the client's machine, files or data. Of all other errors, the server
    is told only the kind.
    """


class Refused(Tellable):
    """A message is not accepted, because its content cannot be valid or is not permitted.

    The reason may quote what arrived: characters that would act on a terminal or in a log are left
    out, and it is cut off at 500 characters.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("".join(letter for letter in reason[:500] if letter.isprintable()))


class NoReplies(Failure):
    """No client replied, so there is nothing to aggregate."""

"""The root of every error that Rocketlet raises on purpose.

Each package grows one small tree under it, cut by whose fault it is and what to do: the peer's, the disk's, the
caller's. An error's text says what happened, at which setting or address, and what to do about it; whoever prints it
at the end of a command prints that text alone, for a stack trace helps only where we did not foresee the failure.

You do not get a RocketletError for a mistake in our own code: those stay AssertionError, TypeError and their kin, take
down the task they happen in, and so the process, loudly.

Java: client/exception/MQClientException.java (and twenty unrelated others)
"""

from __future__ import annotations


class RocketletError(Exception):
    """Something foreseen went wrong; the text says what, where, and what to do."""


def leaves(error: BaseException) -> list[BaseException]:
    """The errors inside an exception group, however deep: what a nursery ended with, one by one."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]

"""Errors from nurseries: trio wraps errors that leave a nursery in groups; users get the error itself.

Java: none
"""

from __future__ import annotations


def innermost(error: BaseException) -> BaseException:
    """The one error inside of nested groups of one; a group of several stays a group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

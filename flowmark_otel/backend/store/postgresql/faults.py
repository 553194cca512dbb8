"""What an error of PostgreSQL, or of the way to it, means for the transaction that met it."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors
from sqlalchemy.exc import DBAPIError

from flowmark_otel.backend.store.database import Fault

_AGAIN: Final = (
    errors.UniqueViolation,
    errors.SerializationFailure,
    errors.DeadlockDetected,
)
_LOST: Final = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.DatabaseDropped,
    errors.IdleSessionTimeout,
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,  # a standby took the name of the server that was written to
)
_LOST_CLASSES: Final = ("08",)
_NEVER: Final = (
    errors.InvalidPassword,
    errors.InvalidAuthorizationSpecification,
    errors.InvalidCatalogName,
    errors.InsufficientPrivilege,
)


def fault_of(error: BaseException) -> Fault:
    """See ``database.Fault``; by SQLSTATE where the server gave one."""
    cause = cause_of(error)
    if isinstance(cause, _AGAIN):
        return Fault.AGAIN
    if isinstance(cause, _LOST):
        return Fault.LOST
    if not isinstance(cause, psycopg.Error):
        return Fault.UNAVAILABLE if isinstance(cause, OSError) else Fault.DEFECT
    state = cause.sqlstate
    if state is None:
        # The driver's own: a connection that broke or cannot be made, or values it cannot send.
        return Fault.LOST if isinstance(cause, psycopg.OperationalError) else Fault.DEFECT
    if state.startswith(_LOST_CLASSES):
        return Fault.LOST
    if isinstance(cause, (psycopg.DataError, psycopg.IntegrityError, errors.SyntaxError)):
        return Fault.DEFECT
    return Fault.UNAVAILABLE


def refusal_of(error: BaseException) -> str | None:
    """What an error of opening says that trying again will not mend."""
    cause = cause_of(error)
    text = said(cause)
    if isinstance(cause, _NEVER):
        return text
    # An error of connecting has no SQLSTATE in this driver; the server's words are all there is.
    lasting = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password")
    unconnected = isinstance(cause, psycopg.OperationalError) and cause.sqlstate is None
    if unconnected and any(words in text for words in lasting):
        return text
    return None


def said(error: BaseException) -> str:
    """The server's or the driver's words, on one line."""
    cause = cause_of(error)
    if isinstance(cause, psycopg.Error) and cause.diag.message_primary:
        return cause.diag.message_primary
    return " ".join(str(cause).split())


def cause_of(error: BaseException) -> BaseException:
    """The driver's error that a wrapper holds."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error

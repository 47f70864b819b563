"""`python -m penstock.console.sql.sql_worker`: runs one query for the HTTP process, and ends.

The request is one JSON document on standard input, the result one on standard output. It ends by
itself a moment after its time, should the process that started it be gone.
"""

import os
import signal
import sys
from typing import Final

import msgspec

from penstock.console.sql.run_query import SqlError, run_query
from penstock.console.sql.sql_request import SqlFailure, SqlResult, WorkerRequest
from penstock.extras import MissingExtraError

NICE: Final = 5
GRACE_S: Final = 5


def main() -> None:
    """Read, run, write."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerRequest)
    signal.alarm(int(request.body.limits.seconds) + GRACE_S)
    os.nice(NICE)
    sys.stdout.buffer.write(msgspec.json.encode(_answer(request)))


def _answer(request: WorkerRequest) -> SqlResult | SqlFailure:
    try:
        return run_query(request.kafka, request.registry_url, request.body)
    except SqlError as error:
        return error.failure
    except MissingExtraError as error:
        return SqlFailure(501, "not_installed", str(error))


if __name__ == "__main__":
    main()

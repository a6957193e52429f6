"""What is in a message of the trace topic: fields parted by \\x01, records ended by \\x02.

    Pub            time region group topic msgId tags keys storeHost bodyLength cost type [offsetMsgId] success [client]
    SubBefore      time region group request msgId retries keys [client]
    SubAfter       request msgId cost success keys [code [time group]]
    EndTransaction time region group topic msgId tags keys storeHost type client transactionId state fromCheck

An old client's SubAfter has no time and group; they are taken from its SubBefore, which has the same request id.

Java: client/trace/TraceDataEncoder.java
"""

from __future__ import annotations

from typing import Any

_FIELD, _RECORD = "\x01", "\x02"
_CONSUMED = ("success", "time out", "exception", "null", "failed")


def decode(text: str) -> list[dict[str, Any]]:
    """The records of one trace message; those that cannot be read are left out."""
    views: list[dict[str, Any]] = []
    open_views: dict[str, dict[str, Any]] = {}
    for record in text.split(_RECORD):
        fields = record.split(_FIELD)
        try:
            view = _view(fields, open_views)
        except (IndexError, ValueError):
            continue  # of an unknown version
        if view is not None:
            views.append(view)
    return views + [open_view for open_view in open_views.values() if open_view.pop("open", False)]


def _view(fields: list[str], open_views: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    kind = fields[0]
    if kind == "Pub":
        good = next((field for field in fields[12:14] if field in ("true", "false")), "true")
        return {
            "type": "Pub",
            "timestamp": int(fields[1]),
            "group": fields[3],
            "topic": fields[4],
            "msgId": fields[5],
            "tags": fields[6],
            "keys": fields[7],
            "storeHost": fields[8],
            "client": fields[14] if len(fields) > 14 else "",
            "costTime": int(fields[10]),
            "status": "success" if good == "true" else "failed",
        }
    if kind == "SubBefore":
        open_views[fields[4]] = {
            "type": "Sub",
            "timestamp": int(fields[1]),
            "group": fields[3],
            "msgId": fields[5],
            "retryTimes": int(fields[6]),
            "keys": fields[7],
            "client": fields[8] if len(fields) > 8 else "",
            "costTime": 0,
            "status": "not finished",
            "open": True,
        }
    elif kind == "SubAfter":
        view = open_views.get(fields[1]) or {"type": "Sub", "timestamp": 0, "group": "", "client": ""}
        view.pop("open", None)
        code = int(fields[6]) if len(fields) > 6 and fields[6].isdigit() else 0
        status = _CONSUMED[0] if fields[4] == "true" else _CONSUMED[code] if 0 < code < len(_CONSUMED) else "failed"
        if len(fields) > 8:
            view |= {"timestamp": view["timestamp"] or int(fields[7]), "group": view["group"] or fields[8]}
        return view | {"msgId": fields[2], "costTime": int(fields[3]), "status": status}
    elif kind == "EndTransaction":
        return {
            "type": "EndTransaction",
            "timestamp": int(fields[1]),
            "group": fields[3],
            "topic": fields[4],
            "msgId": fields[5],
            "client": fields[10],
            "costTime": 0,
            "status": fields[12],
        }
    return None

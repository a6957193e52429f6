"""A program around the C functions of the official C++ client's library: sends messages, or consumes them.

    python cpp_client.py LIBRARY NAMESRV send TOPIC COUNT [ACCESS_KEY SECRET_KEY]
    python cpp_client.py LIBRARY NAMESRV consume TOPIC COUNT SECONDS [ACCESS_KEY SECRET_KEY]

For each message it prints SENT, or FAILED and the reason, or GOT and the body. It is a separate process: the library
has threads that nothing joins, and writes its log below HOME.
"""

from __future__ import annotations

import os
import sys
import threading
from ctypes import CDLL, CFUNCTYPE, Structure, byref, c_char, c_char_p, c_int, c_longlong, c_void_p
from typing import Any

GROUP = b"GID-cpp"
OK = 0


class SendResult(Structure):
    _fields_ = [("status", c_int), ("message_id", c_char * 256), ("offset", c_longlong)]


def library(path: str) -> Any:
    """Its functions; handles are declared as pointers."""
    loaded = CDLL(path)
    for kind in ("Message", "Producer", "PushConsumer"):
        create = getattr(loaded, f"Create{kind}")
        create.argtypes, create.restype = [c_char_p], c_void_p
    loaded.GetMessageBody.argtypes, loaded.GetMessageBody.restype = [c_void_p], c_char_p
    loaded.GetLatestErrorMessage.restype = c_char_p
    return loaded


def say(line: str) -> None:
    """Print in one piece: the library calls back from several threads."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def send(cpp: Any, namesrv: bytes, topic: bytes, count: int, account: list[bytes]) -> None:
    producer = c_void_p(cpp.CreateProducer(GROUP))
    cpp.SetProducerNameServerAddress(producer, namesrv)
    cpp.SetProducerSendMsgTimeout(producer, 10_000)
    if account:
        cpp.SetProducerSessionCredentials(producer, *account, b"")
    assert cpp.StartProducer(producer) == OK
    for number in range(count):
        message = c_void_p(cpp.CreateMessage(topic))
        cpp.SetMessageTags(message, b"cpp")
        cpp.SetMessageBody(message, b"body %d" % number)
        result = SendResult()
        status = cpp.SendMessageSync(producer, message, byref(result))
        why = "" if status == OK else (cpp.GetLatestErrorMessage() or b"").decode(errors="replace")
        say("SENT" if status == OK else f"FAILED {status} {why!r}")
        cpp.DestroyMessage(message)
    cpp.ShutdownProducer(producer)


def consume(cpp: Any, namesrv: bytes, topic: bytes, count: int, seconds: float, account: list[bytes]) -> None:
    wanted = threading.Semaphore(0)

    @CFUNCTYPE(c_int, c_void_p, c_void_p)
    def took(_consumer: int, message: int) -> int:
        say(f"GOT {cpp.GetMessageBody(message).decode()}")
        wanted.release()
        return OK

    consumer = c_void_p(cpp.CreatePushConsumer(GROUP))
    cpp.SetPushConsumerNameServerAddress(consumer, namesrv)
    if account:
        cpp.SetPushConsumerSessionCredentials(consumer, *account, b"")
    cpp.Subscribe(consumer, topic, b"*")
    cpp.RegisterMessageCallback(consumer, took)
    assert cpp.StartPushConsumer(consumer) == OK
    for _ in range(count):
        if not wanted.acquire(timeout=seconds):
            break
    cpp.ShutdownPushConsumer(consumer)


def main(path: str, namesrv: str, act: str, topic: str, count: str, *rest: str) -> None:
    cpp = library(path)
    words = [word.encode() for word in rest]
    if act == "send":
        send(cpp, namesrv.encode(), topic.encode(), int(count), words)
    else:
        consume(cpp, namesrv.encode(), topic.encode(), int(count), float(words[0]), words[1:])
    os._exit(0)  # its threads do not all end


if __name__ == "__main__":
    main(*sys.argv[1:])

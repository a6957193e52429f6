"""A web service that takes orders and queues them, with Flask: flask --app examples/web/app run

One producer serves all threads of the process. POST /orders queues an order, GET /orders/ID finds it by its key. Create
the producer in the process that uses it: behind gunicorn and the like it starts with the first request of each worker.
The name server is NAMESRV_ADDR's, or 127.0.0.1:9876. Needs `pip install flask`.
"""

from __future__ import annotations

import atexit
import json
import uuid
from functools import cache
from typing import Any

from flask import Flask, jsonify, request

from rocketlet import ClientError, Message, Producer

TOPIC = "WebOrders"
app = Flask(__name__)


@cache
def producer() -> Producer:
    """The process's producer, started with the first request."""
    started = Producer("web-shop")
    started.start()
    atexit.register(started.shutdown)
    return started


@app.post("/orders")
def take_order() -> Any:
    """Queue the order, and answer only when the broker has it."""
    order = {"id": uuid.uuid4().hex, **request.get_json()}
    result = producer().send(Message(TOPIC, json.dumps(order).encode(), keys=[order["id"]], tags="new"))
    return jsonify(id=order["id"], message_id=result.message_id), 202


@app.get("/orders/<order_id>")
def find_order(order_id: str) -> Any:
    """Any message can be found by its key."""
    found = producer().query(TOPIC, order_id, at_most=1)
    return (jsonify(json.loads(found[0].body)), 200) if found else (jsonify(error="no such order"), 404)


@app.errorhandler(ClientError)
def unavailable(error: ClientError) -> Any:
    """The error says what failed, where, after how many attempts, and what to do."""
    return jsonify(error=str(error)), 503

"""The official client of RocketMQ 5 for Python: send, receive, acknowledge.

pip install rocketmq-python-client 'rocketlet[grpc]'; rocketlet up --grpc-port 8081; then run this with the endpoint as
its argument. The topic is created with `mqadmin updateTopic`, as usual in RocketMQ 5.
"""

import os
import sys

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

from rocketlet import Producer as Admin

ENDPOINTS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8081"

with Admin("example") as admin:  # finds the name server by NAMESRV_ADDR
    admin.create_topic("orders-5", queues=4)

configuration = ClientConfiguration(ENDPOINTS, Credentials())
producer = Producer(configuration, ["orders-5"])
producer.startup()
message = Message()
message.topic, message.body, message.tag = "orders-5", b"3 apples", "fruit"
receipt = producer.send(message)
print("sent to offset", receipt.offset)

consumer = SimpleConsumer(configuration, "order-readers", {"orders-5": FilterExpression("fruit")})
consumer.startup()
left = 1
while left:
    for received in consumer.receive(32, 15):  # at most 32, invisible to others for 15 s
        print("received", received.body.decode(), "delivery", received.delivery_attempt)
        consumer.ack(received)
        left -= 1

consumer.shutdown()
producer.shutdown()
sys.stdout.flush()
os._exit(0)  # the client leaves threads running that would keep the process alive

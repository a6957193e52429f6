"""The metrics of a broker: the names of rocketmq-exporter, those of RocketMQ 5, and our own."""

"""What a broker tells on its page of metrics: the names of rocketmq-exporter, those of RocketMQ 5, and our own."""

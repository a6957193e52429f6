"""The format "rocketmq": topics of running brokers as tables and streams for Spark, and rows sent to topics."""

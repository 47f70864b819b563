"""The platform watched over the Kafka protocol: lag of groups, and where every process has metrics.

Runs in the HTTP process and reaches the log over the Kafka protocol only, so it costs the brokers a
few small requests every five seconds and works on Apache Kafka too.
"""

"""The console: web pages over JSON routes, and SQL over topics.

Reaches the log over the Kafka protocol only, so it serves any Kafka cluster. Keeps nothing that a
restart may lose, except the last hour of lag.
"""

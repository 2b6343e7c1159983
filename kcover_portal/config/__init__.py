"""How a process is set up: the environment, the database, logs, the broker, memory."""

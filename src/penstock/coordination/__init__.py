"""The machines that coordinate: controller, groups, transactions. Pure: no I/O, clock or chance."""

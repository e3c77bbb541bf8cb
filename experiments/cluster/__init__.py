"""A cluster whose nodes fail, simulated under every policy: `bayplan compare experiment=ft_32`."""

"""How a user's training loop is followed: where iterations end, what reads memory past operators, what is refused."""

"""Jobs that could share boards, and the advice to let them."""

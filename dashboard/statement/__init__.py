"""The statement of cost: who used the boards, and what that costs by the price list."""

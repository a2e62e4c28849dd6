"""From a plan to recommendations: what to change, why, what it saves net, and what it rests on."""

-- A server warms its own memory: no answers for pages are stored.
DROP TABLE prepared_answers;

package main

// buckets are bugs of the statements that take from a token bucket.
var buckets = []Mutant{
	{
		Name:  "bucket-decided-in-a-cte",
		Bug:   "a take is admitted by what a CTE of its statement read before the row was locked",
		Found: []string{"https://github.com/cheddar-me/pecorino/pull/31"},
		Edits: []Edit{{
			"postgres/sql/bucket_take.sql",
			"\n      AND greatest(b.full_at, excluded.at) + $5::bigint <= excluded.at + $7::bigint", "",
		}},
		Check: Check{Package: "./postgres", Run: "^TestBucket_whose_second_waiting_take_has_an_older_clock$", Says: "Took = true, true"},
	},
	{
		Name: "bucket-decided-in-a-subquery",
		CI:   true,
		Bug:  "a take is admitted by a subquery, which sees the snapshot and not the locked row",
		Edits: []Edit{{
			"postgres/sql/bucket_take.sql",
			"\n      AND greatest(b.full_at, excluded.at) + $5::bigint <= excluded.at + $7::bigint",
			`
      AND greatest((SELECT s.full_at FROM /* schema */limiter_token_buckets AS s WHERE s.limiter = $1::text AND s.key = $2::bytea),
            excluded.at) + $5::bigint <= excluded.at + $7::bigint`,
		}},
		Check: Check{Package: "./postgres", Run: "^TestBucket_whose_second_waiting_take_has_an_older_clock$", Says: "Took = true, true"},
	},
	{
		Name: "bucket-written-from-excluded",
		Bug:  "a take writes the row of an unused key and forgets the takes of others",
		Edits: []Edit{{
			"postgres/sql/bucket_take.sql",
			"SET full_at = greatest(b.full_at, excluded.at) + $5::bigint", "SET full_at = excluded.full_at",
		}},
		Check: Check{Package: "./postgres", Run: "^TestOperations_on_any_row$", Says: "want {"},
	},
	{
		Name: "bucket-saves-up",
		Bug:  "without greatest(), an idle bucket saves up more than its capacity",
		Edits: []Edit{{
			"postgres/sql/bucket_take.sql",
			"SET full_at = greatest(b.full_at, excluded.at) + $5::bigint", "SET full_at = b.full_at + $5::bigint",
		}},
		Check: Check{Package: "./postgres", Run: "^TestOperations_on_any_row$", Says: "want {"},
	},
	{
		Name: "bucket-of-another-policy",
		Bug:  "the row of another policy is read as a row of this one",
		Edits: []Edit{
			{
				"postgres/sql/bucket_take.sql",
				"(b.step <> $3::bigint OR b.capacity <> $4::bigint\n        OR b.full_at", "(false\n        OR b.full_at",
			},
			{
				"postgres/sql/bucket_take.sql",
				"WHERE b.step = excluded.step AND b.capacity = excluded.capacity\n      AND", "WHERE",
			},
		},
		Check: Check{Package: "./postgres", Run: "^TestOperations_on_any_row$", Says: "want {"},
	},
	{
		Name:  "bucket-swapped-unseen",
		Bug:   "a row is written back without checking whether it has changed since it was read",
		Found: []string{"https://github.com/gravitee-io/issues/issues/2206"},
		Edits: []Edit{{
			"postgres/sql/swap.sql",
			"AND (/* columns */) = (/* old */)", "AND (/* old */) IS NOT NULL",
		}},
		Check: Check{Package: "./postgres", Run: "^TestTake_under_a_new_policy_counts_what_was_taken_while_it_waited$", Says: "4 were granted of 3"},
	},
	{
		Name:  "bucket-first-take-collides",
		Bug:   "if two callers take from a new key at the same time, one gets an error",
		Found: []string{"https://github.com/gravitee-io/issues/issues/1002", "https://github.com/cheddar-me/pecorino/pull/30"},
		Edits: []Edit{{
			"postgres/sql/bucket_take.sql",
			`    ON CONFLICT (limiter, key) DO UPDATE
    SET full_at = greatest(b.full_at, excluded.at) + $5::bigint,
        at = excluded.at,
        granted = 1
    WHERE b.step = excluded.step AND b.capacity = excluded.capacity
      AND b.at <= excluded.at + 2000000000
      AND greatest(b.full_at, excluded.at) + $5::bigint <= excluded.at + $7::bigint
    RETURNING b.full_at, b.at
)
SELECT 1, at, full_at, at FROM taken
`,
			`      AND NOT EXISTS (SELECT FROM /* schema */limiter_token_buckets AS r WHERE r.limiter = $1::text AND r.key = $2::bytea)
    RETURNING b.full_at, b.at
), updated AS (
    UPDATE /* schema */limiter_token_buckets AS b
    SET full_at = greatest(b.full_at, clock.at) + $5::bigint, at = clock.at, granted = 1
    FROM clock
    WHERE b.limiter = $1::text AND b.key = $2::bytea
      AND b.step = $3::bigint AND b.capacity = $4::bigint AND b.at <= clock.at + 2000000000
      AND greatest(b.full_at, clock.at) + $5::bigint <= clock.at + $7::bigint
    RETURNING b.full_at, b.at
)
SELECT 1, at, full_at, at FROM taken
UNION ALL
SELECT 1, at, full_at, at FROM updated
`,
		}},
		Check: Check{
			Package: "./postgres", Run: "^TestFirst_takes_of_a_key_that_meet_are_both_decided$",
			Says: "duplicate key value violates unique constraint",
		},
	},
	{
		Name: "bucket-answers-from-a-second-read",
		Bug:  "Remaining is read again after the take, and includes the takes of others",
		Edits: []Edit{{
			"postgres/settle.go",
			"		if decided {\n			c.Answer(state)\n",
			"		if decided {\n			if again, lost := s.look(ctx, db, t, &c.Op); state.Took && lost == nil {\n				state.Row = again.row\n			}\n			c.Answer(state)\n",
		}},
		Check: Check{Package: "./postgres", Run: "^TestGrants_of_a_busy_key_are_those_of_a_sequential_run$", Says: "want"},
	},
}

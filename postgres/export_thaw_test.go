package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PingAfterFreezeBy is PingAfterFreeze with another clock.
func PingAfterFreezeBy(config *pgxpool.Config, now func() time.Time) { pingAfterFreeze(config, now) }

// PongWithin is the PingTimeout that PingAfterFreeze sets.
const PongWithin = pongWithin

// PoolConfig returns what a store from Open makes its pool from.
func PoolConfig(s *Store) *pgxpool.Config { return s.config }

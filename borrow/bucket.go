package borrow

import "github.com/sqlimit/limiter"

// bucket is the only kind of policy whose tokens are taken ahead. What a window counts belongs to the window
// that it was counted in.
type bucket = limiter.TokenBucket

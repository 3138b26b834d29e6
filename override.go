package limiter

import "time"

// Override is a policy of one key, which replaces that of its limiter. Operators set overrides in the
// table limiter_overrides, and package [github.com/sqlimit/limiter/overrides] applies them.
type Override struct {
	Key       string    // as stores keep it: see [StoredKey]
	Policy    Policy    // of the same kind as the limiter's own; nil if Limit is set
	Limit     int64     // replaces the Limit of overrides.Base, 1 to 2^60; 0 means that Policy applies
	Note      string    // for people, may be empty
	ExpiresAt time.Time // when the override ends; the zero time means never
}

// StoredKey returns the form in which stores keep a key. Tools need it to find the row of a key, and
// to set an [Override]. Pass the secret of [WithKeyDigest], or nil for a limiter without it.
//
// Without a secret it is the key itself, unless the key is longer than 255 bytes or begins with byte
// 0. Otherwise it is byte 0 and a digest. The error matches [ErrInvalid] if the key is empty, or if
// the secret is empty but not nil. StoredKey is safe for concurrent use.
func StoredKey(key string, secret []byte) (string, error) {
	if secret != nil && len(secret) == 0 {
		return "", invalid("StoredKey got an empty secret; pass that of WithKeyDigest, or nil for a limiter without it")
	}
	if secret == nil && isPlain(key) {
		return key, nil // without the allocation of a keyer
	}
	k := keyer{secret: secret}
	return k.stored(key, nil)
}

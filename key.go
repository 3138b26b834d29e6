package limiter

import (
	"crypto/hmac"
	"crypto/sha256"
)

const (
	maxName = 64
	// maxKey is the longest key that is stored as it is. PostgreSQL refuses an
	// index row beyond a third of a page (2,704 bytes), name and key together.
	maxKey = 255
)

func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return invalid("the limiter's name has %d bytes; it must have 1 to %d", len(name), maxName)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == ':', c == '/', c == '-':
		default:
			return invalid("the limiter's name has byte %#02x at offset %d; it may have A-Z a-z 0-9 . _ : / -", c, i)
		}
	}
	return nil
}

// storedKey returns the key as stores keep it. Any string is a key, and no two
// are stored alike: what is stored as a hash begins with byte 0, which no key
// stored as it is does.
func storedKey(key string, secret []byte) (string, error) {
	if key == "" {
		return "", invalid("the key is empty, which would be one limit for everybody; pass what tells callers apart")
	}
	if secret != nil {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key))
		return hashed(mac.Sum(nil)), nil
	}
	if len(key) > maxKey || key[0] == 0 {
		sum := sha256.Sum256([]byte(key))
		return hashed(sum[:]), nil
	}
	return key, nil
}

func hashed(sum []byte) string { return "\x00" + string(sum) }

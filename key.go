package limiter

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
)

const (
	maxName = 64
	// maxKey is the longest key that is stored as it is. PostgreSQL refuses an index row of more
	// than a third of a page (2,704 bytes) for name and key together.
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

// isPlain reports whether a key is stored as it is, if there is no secret.
func isPlain(key string) bool { return key != "" && len(key) <= maxKey && key[0] != 0 }

// keyer converts keys to stored keys. It is safe for concurrent use.
type keyer struct {
	secret []byte    // nil to store keys as they are
	hashes sync.Pool // of *keyHash: making one costs more than using it
}

// keyHash holds the input and output of hash, which would otherwise be allocated each time.
type keyHash struct {
	hash hash.Hash
	in   [sha256.BlockSize]byte
	sum  [1 + sha256.Size]byte
}

// stored returns the key as stores keep it. Any string is a valid key except "", and no two keys
// are stored alike: a hashed key begins with byte 0, which no other stored key does. If the deny
// cache has the hash, its string is used again.
func (k *keyer) stored(key string, deny *denyCache) (string, error) {
	if key == "" {
		return "", invalid("the key is empty; pass what identifies the caller, such as a user ID")
	}
	if k.secret == nil && isPlain(key) {
		return key, nil
	}
	h, ok := k.hashes.Get().(*keyHash)
	if !ok {
		h = &keyHash{hash: sha256.New()}
		if k.secret != nil {
			h.hash = hmac.New(sha256.New, k.secret)
		}
	}
	defer k.hashes.Put(h)
	h.hash.Reset()
	for len(key) > 0 {
		n := copy(h.in[:], key)
		h.hash.Write(h.in[:n])
		key = key[n:]
	}
	h.hash.Sum(h.sum[:1])
	if deny != nil {
		return deny.refusals.known(h.sum[:]), nil
	}
	return string(h.sum[:]), nil
}

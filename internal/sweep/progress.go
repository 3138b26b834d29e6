package sweep

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/sqlimit/limiter"
)

// Progress is how far a sweep has come. postgres.SweepProgress and sqlite.SweepProgress have the same
// fields.
type Progress struct {
	Deleted        int64
	Visited, Total int64
	Position       string
}

// progress counts the pages of one sweep. The mutex of its Sweeper guards it.
type progress struct {
	deleted        int64
	visited, total []int64 // of each table
}

// begin returns the counts of a new sweep.
func (s *Sweeper) begin(tables int) *progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = &progress{visited: make([]int64, tables), total: make([]int64, tables)}
	return s.latest
}

func (p *progress) add(table int, page Page) {
	p.deleted += page.Removed
	p.visited[table] += page.Visited
	if page.Total > 0 { // the last page of a circle may pass the place where the circle began
		p.total[table] = page.Total
		p.visited[table] = min(p.visited[table], page.Total)
	}
}

// Progress returns how far the sweep of that many tables has come that began last.
func (s *Sweeper) Progress(tables int) (p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil {
		p.Deleted = s.latest.deleted
		for i := range s.latest.visited {
			p.Visited += s.latest.visited[i]
			p.Total += s.latest.total[i]
		}
	}
	if len(s.positions) == 0 {
		return p
	}
	parts := make([]string, tables)
	for i, at := range s.positions {
		parts[i] = at.text()
	}
	p.Position = strings.Join(parts, ",")
	return p
}

// Continue makes the next sweep begin at a position that [Sweeper.Progress] returned. blocks says
// whether the cursors of the tables are blocks. The error does not quote the position, which may hold a key.
func (s *Sweeper) Continue(position string, tables int, blocks bool) error {
	parts := strings.Split(position, ",")
	positions := map[int]Cursor{}
	valid := len(parts) == tables || position == "" // no sweep has begun
	for i, part := range parts {
		if part == "" { // of a table that the sweep did not reach
			continue
		}
		at, ok := parse(part, blocks)
		valid = valid && ok
		positions[i] = at
	}
	if !valid {
		return fmt.Errorf("%w: the position is not one of a sweep; pass one that a sweep of this database returned", limiter.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.positions = positions
	return nil
}

// text returns the cursor in letters and digits, because names and keys may hold anything.
func (c Cursor) text() string {
	if c.Name == "" && len(c.Key) == 0 {
		return strconv.FormatInt(c.Block, 10)
	}
	return hex.EncodeToString([]byte(c.Name)) + "." + hex.EncodeToString(c.Key)
}

// mostBlocks is less than the 2^32-1 blocks that a table of PostgreSQL may have, because a statement reads up to
// 512 blocks beyond its position.
const mostBlocks = 1<<32 - 1<<16

func parse(text string, blocks bool) (c Cursor, ok bool) {
	if name, key, found := strings.Cut(text, "."); found {
		nameBytes, err1 := hex.DecodeString(name)
		keyBytes, err2 := hex.DecodeString(key)
		return Cursor{Name: string(nameBytes), Key: keyBytes}, err1 == nil && err2 == nil && !blocks
	}
	block, err := strconv.ParseInt(text, 10, 64)
	return Cursor{Block: block}, err == nil && block >= 0 && block < mostBlocks && (blocks || block == 0)
}

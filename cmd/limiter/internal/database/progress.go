package database

// Progress is how far a command has come. Visited and Total are in pages or in rows. Total is 0 if
// it is not known.
type Progress struct {
	Deleted, Visited, Total int64
	Position                string
}

// Share returns the done share, or 0 if it is not known.
func (p Progress) Share() float64 {
	if p.Total == 0 {
		return 0
	}
	return min(1, float64(p.Visited)/float64(p.Total))
}

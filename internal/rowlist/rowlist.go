// Package rowlist converts the List of a limiter.Row: numbers of 8 bytes each, the highest byte first.
package rowlist

import "encoding/binary"

// Numbers returns the numbers of a list. A rest of less than 8 bytes does not count.
func Numbers(list string) []int64 {
	numbers := make([]int64, len(list)/8)
	for i := range numbers {
		numbers[i] = int64(binary.BigEndian.Uint64([]byte(list[8*i : 8*i+8])))
	}
	return numbers
}

// Of returns numbers as a list.
func Of(numbers ...int64) string {
	list := make([]byte, 0, 8*len(numbers))
	for _, n := range numbers {
		list = binary.BigEndian.AppendUint64(list, uint64(n))
	}
	return string(list)
}

// Part is one of the lists that a [limiter.Row].List joins. All lists of a row have the same length.
type Part struct {
	Row   *string // the List of the row
	Index int     // of this list
	Of    int     // how many lists there are
}

// Get returns the numbers of the list.
func (p Part) Get() string {
	size := len(*p.Row) / (8 * p.Of) * 8
	return (*p.Row)[p.Index*size : (p.Index+1)*size]
}

// Set sets the list. The lists of a row must be set in their order.
func (p Part) Set(list string) {
	if p.Index == 0 {
		*p.Row = ""
	}
	*p.Row += list
}

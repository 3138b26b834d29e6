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

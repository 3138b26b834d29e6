package postgres

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sqlimit/limiter/internal/rowlist"
)

// The arguments of takes are pointers to these types, which pgx encodes without an allocation. A
// plain argument, and each element of a plain slice, would need one. If pgx sends text, as in
// [pgx.QueryExecModeExec], it asks for TextValue first. A tracer that prints arguments prints
// addresses, so no key gets into a log.
type (
	textArg  string
	byteaArg []byte
	int8Arg  int64

	textsArg  []textArg
	byteasArg []byteaArg
	int8sArg  []int8Arg
)

func (a *textArg) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*a), Valid: true}, nil
}

func (a *byteaArg) BytesValue() ([]byte, error) { return *a, nil }

func (a *byteaArg) TextValue() (pgtype.Text, error) {
	return asText(pgtype.ByteaOID, []byte(*a))
}

func (a *int8Arg) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*a), Valid: true}, nil
}

func (a *int8Arg) TextValue() (pgtype.Text, error) {
	return asText(pgtype.Int8OID, int64(*a))
}

func (a *textsArg) Dimensions() []pgtype.ArrayDimension { return dimension(len(*a)) }
func (a *textsArg) Index(i int) any                     { return &(*a)[i] }
func (a *textsArg) IndexType() any                      { return (*textArg)(nil) }

func (a *textsArg) TextValue() (pgtype.Text, error) {
	return asText(pgtype.TextArrayOID, convert(*a, func(e textArg) string { return string(e) }))
}

func (a *byteasArg) Dimensions() []pgtype.ArrayDimension { return dimension(len(*a)) }
func (a *byteasArg) Index(i int) any                     { return &(*a)[i] }
func (a *byteasArg) IndexType() any                      { return (*byteaArg)(nil) }

func (a *byteasArg) TextValue() (pgtype.Text, error) {
	return asText(pgtype.ByteaArrayOID, convert(*a, func(e byteaArg) []byte { return e }))
}

func (a *int8sArg) Dimensions() []pgtype.ArrayDimension { return dimension(len(*a)) }
func (a *int8sArg) Index(i int) any                     { return &(*a)[i] }
func (a *int8sArg) IndexType() any                      { return (*int8Arg)(nil) }

func (a *int8sArg) TextValue() (pgtype.Text, error) {
	return asText(pgtype.Int8ArrayOID, convert(*a, func(e int8Arg) int64 { return int64(e) }))
}

func dimension(n int) []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(n), LowerBound: 1}}
}

func convert[From, To any](from []From, f func(From) To) []To {
	to := make([]To, len(from))
	for i, e := range from {
		to[i] = f(e)
	}
	return to
}

// asText is pgx's text format of a plain value.
func asText(oid uint32, value any) (pgtype.Text, error) {
	text, err := pgtype.NewMap().Encode(oid, pgtype.TextFormatCode, value, nil)
	return pgtype.Text{String: string(text), Valid: true}, err
}

// listArg is a list of a [limiter.Row], as a bigint[] that is sent or scanned.
type listArg struct {
	list    rowlist.Part
	scanned []byte // its capacity is that of the whole list
}

func (a *listArg) numbers() int8sArg {
	return convert(rowlist.Numbers(a.list.Get()), func(n int64) int8Arg { return int8Arg(n) })
}

func (a *listArg) Dimensions() []pgtype.ArrayDimension { return dimension(len(a.list.Get()) / 8) }
func (a *listArg) Index(i int) any {
	n := int8Arg(rowlist.Numbers(a.list.Get()[8*i : 8*i+8])[0])
	return &n
}
func (a *listArg) IndexType() any { return (*int8Arg)(nil) }

func (a *listArg) TextValue() (pgtype.Text, error) {
	numbers := a.numbers()
	return numbers.TextValue()
}

func (a *listArg) SetDimensions(dimensions []pgtype.ArrayDimension) error {
	n := 0
	for _, d := range dimensions {
		n = int(d.Length)
	}
	if a.scanned = make([]byte, 0, 8*n); n == 0 {
		a.list.Set("")
	}
	return nil
}

// ScanIndex returns where the next element is scanned: pgx scans them in order.
func (a *listArg) ScanIndex(int) any  { return a }
func (a *listArg) ScanIndexType() any { return a }

func (a *listArg) ScanInt64(n pgtype.Int8) error {
	if a.scanned = binary.BigEndian.AppendUint64(a.scanned, uint64(n.Int64)); len(a.scanned) == cap(a.scanned) {
		a.list.Set(string(a.scanned))
	}
	return nil
}

package postgres

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestArgumentsEncodeAsPlainOnes(t *testing.T) {
	t.Parallel()
	name, key, number := textArg("a\"{,}\\ b"), byteaArg("\x00k'\\"), int8Arg(-1<<62)
	names, keys, numbers := textsArg{name, "NULL", ""}, byteasArg{key, {}}, int8sArg{number, 0, 1 << 62}
	list := rowlist.Of(-1<<62, 0, 1<<62)
	for _, c := range []struct {
		oid        uint32
		arg, plain any
	}{
		{pgtype.TextOID, &name, string(name)},
		{pgtype.ByteaOID, &key, []byte(key)},
		{pgtype.Int8OID, &number, int64(number)},
		{pgtype.TextArrayOID, &names, []string{string(name), "NULL", ""}},
		{pgtype.ByteaArrayOID, &keys, [][]byte{key, {}}},
		{pgtype.Int8ArrayOID, &numbers, []int64{-1 << 62, 0, 1 << 62}},
		{pgtype.Int8ArrayOID, &listArg{list: rowlist.Part{Row: &list, Of: 1}}, []int64{-1 << 62, 0, 1 << 62}},
		{pgtype.Int8ArrayOID, &listArg{list: rowlist.Part{Row: new(string), Of: 1}}, []int64{}},
	} {
		for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
			want, err := pgtype.NewMap().Encode(c.oid, format, c.plain, nil)
			testenv.Must(t, err)
			oids := []uint32{c.oid}
			if format == pgtype.TextFormatCode {
				oids = append(oids, 0) // nobody knows the type, in QueryExecModeExec
			}
			for _, oid := range oids {
				got, err := pgtype.NewMap().Encode(oid, format, c.arg, nil)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%T as type %d, format %d: %q, %v; want %q", c.arg, oid, format, got, err, want)
				}
			}
		}
	}
}

package postgres

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sqlimit/limiter"
)

func TestArguments_are_sent_as_plain_ones_are(t *testing.T) {
	t.Parallel()
	name, key, number := textArg("a\"{,}\\ b"), byteaArg("\x00k'\\"), int8Arg(-1<<62)
	names, keys, numbers := textsArg{name, "NULL", ""}, byteasArg{key, {}}, int8sArg{number, 0, 1 << 62}
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
	} {
		for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
			want, err := pgtype.NewMap().Encode(c.oid, format, c.plain, nil)
			if err != nil {
				t.Fatal(err)
			}
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

func TestArguments_of_a_hot_call_have_NULL_for_no_time(t *testing.T) {
	t.Parallel()
	for _, at := range []int64{0, 7} {
		op := limiter.Op{Name: "l", Key: "k", At: at}
		c := newHotCall(op, 1, 0, 3, 0, op.At, 6).noTime(op, 7)
		if len(c.args) != 8 {
			t.Fatalf("%d arguments, want 8", len(c.args))
		}
		for i, arg := range c.args {
			if (arg == nil) != (at == 0 && i == 6) {
				t.Errorf("time %d: argument %d is %v", at, i+1, arg)
			}
		}
	}
}

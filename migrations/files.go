package migrations

import (
	"archive/zip"
	"bytes"
	"embed"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/sqlimit/limiter/internal/pgschema"
)

// FS holds the migrations in the directories postgres and sqlite: one file per version, with goose
// annotations. Use it to run them with another tool; the files are valid as they are. FS is
// read-only and safe for concurrent use.
//
//go:embed postgres/*.sql sqlite/*.sql
var FS embed.FS

const (
	// schemaMark precedes every name of a table or view in the files for PostgreSQL.
	schemaMark = "/* schema */"

	// upMark and downMark are the annotations before the statements of each direction.
	upMark, downMark = "-- +goose Up\n", "-- +goose Down\n"

	// pinSearchPath ends with its transaction and leaves the caller's connection as it was. Types,
	// functions and operators then come from PostgreSQL itself, not from a schema or temporary
	// object that the connection's search_path names first.
	pinSearchPath = "SET LOCAL search_path = pg_catalog, pg_temp;"
)

// render returns one migration with all names qualified by the schema. goose runs each direction of
// a file in one transaction, which SET LOCAL in its first line needs.
func render(text, schema string) string {
	text = strings.ReplaceAll(text, schemaMark, pgschema.Quote(schema)+".")
	for _, direction := range []string{upMark, downMark} {
		text = strings.Replace(text, direction, direction+pinSearchPath+"\n", 1)
	}
	return text
}

// files returns the migrations of the configured dialect, ready for goose.
func (c config) files() (fs.FS, error) {
	sub, err := fs.Sub(c.source, string(c.dialect))
	if err != nil || c.dialect != Postgres {
		return sub, err
	}
	// An archive in memory is the one file system in the standard library that takes texts made at
	// run time, apart from the one in testing/fstest.
	var buf bytes.Buffer
	archive := zip.NewWriter(&buf)
	err = fs.WalkDir(sub, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(sub, name)
		if err != nil {
			return err
		}
		file, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			return err
		}
		_, err = io.WriteString(file, render(string(text), c.schema))
		return err
	})
	if err = errors.Join(err, archive.Close()); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(buf.Bytes()), int64(buf.Len()))
}

package migrations

import (
	"bytes"
	"embed"
	"io"
	"io/fs"
	"strings"
)

// FS holds the migrations as they are shipped, in the directories postgres and
// sqlite, one file a version, with goose annotations. It is for programs that
// run them with tools of their own: the files are valid as they stand. FS is
// read-only and safe for concurrent use.
//
//go:embed postgres/*.sql sqlite/*.sql
var FS embed.FS

const (
	// schemaMark stands directly before every name of a table or view in the
	// files for PostgreSQL.
	schemaMark = "/* schema */"

	// pinSearchPath ends with the transaction that it begins, and leaves the
	// caller's connection as it was. A type, function or operator then comes
	// from PostgreSQL itself, and not from a schema (or the temporary objects)
	// that the connection's search_path happens to put before it.
	pinSearchPath = "SET LOCAL search_path = pg_catalog, pg_temp;"
)

// render returns one migration with every name qualified by the schema. goose
// runs each direction of a file in one transaction, which is what SET LOCAL in
// its first line needs.
func render(text, schema string) string {
	text = strings.ReplaceAll(text, schemaMark, quote(schema)+".")
	for _, direction := range []string{"-- +goose Up\n", "-- +goose Down\n"} {
		text = strings.Replace(text, direction, direction+pinSearchPath+"\n", 1)
	}
	return text
}

// quote makes an SQL identifier of a name that matches schemaName, which admits
// no quotation mark but does admit reserved words such as user.
func quote(name string) string {
	return `"` + name + `"`
}

// files returns the migrations of the configured dialect, ready for goose.
func (c config) files() (fs.FS, error) {
	sub, err := fs.Sub(FS, string(c.dialect))
	if err != nil {
		return nil, err
	}
	if c.dialect != Postgres {
		return sub, nil
	}
	return schemaFS{FS: sub, schema: c.schema}, nil
}

// schemaFS renders files as they are opened. Directories pass through.
type schemaFS struct {
	fs.FS
	schema string
}

// Open implements [fs.FS].
func (s schemaFS) Open(name string) (fs.File, error) {
	file, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	rendered := render(string(text), s.schema)
	return &renderedFile{File: file, Reader: bytes.NewReader([]byte(rendered)), info: info}, nil
}

// renderedFile is an open file whose text differs from the one embedded.
type renderedFile struct {
	fs.File
	*bytes.Reader
	info fs.FileInfo
}

// Read reads the rendered text.
func (f *renderedFile) Read(p []byte) (int, error) { return f.Reader.Read(p) }

// Stat describes the rendered text.
func (f *renderedFile) Stat() (fs.FileInfo, error) {
	return renderedInfo{FileInfo: f.info, size: f.Reader.Size()}, nil
}

// renderedInfo is a file's description with the size of its rendered text.
type renderedInfo struct {
	fs.FileInfo
	size int64
}

// Size returns the length of the rendered text in bytes.
func (i renderedInfo) Size() int64 { return i.size }

package options

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"
)

// maxDocument bounds a document, in bytes.
const maxDocument = 1 << 20

// Keys are spelled as in containerd.runc.v1.Options (binary_name), or as in
// containerd's own configuration (BinaryName), which is where a document comes
// from under CRI. The two structs have the same fields, so that one can be
// converted to the other.
type (
	fields struct {
		NoPivotRoot   *bool   `toml:"no_pivot_root"`
		NoNewKeyring  *bool   `toml:"no_new_keyring"`
		ShimCgroup    *string `toml:"shim_cgroup"`
		IoUid         *uint32 `toml:"io_uid"`
		IoGid         *uint32 `toml:"io_gid"`
		BinaryName    *string `toml:"binary_name"`
		Root          *string `toml:"root"`
		SystemdCgroup *bool   `toml:"systemd_cgroup"`
		CriuImagePath *string `toml:"criu_image_path"`
		CriuWorkPath  *string `toml:"criu_work_path"`
		LogLevel      *string `toml:"log_level"`
		LogPath       *string `toml:"log_path"`
	}
	camelFields struct {
		NoPivotRoot   *bool
		NoNewKeyring  *bool
		ShimCgroup    *string
		IoUid         *uint32
		IoGid         *uint32
		BinaryName    *string
		Root          *string `toml:"-"` // has one spelling
		SystemdCgroup *bool
		CriuImagePath *string
		CriuWorkPath  *string
		LogLevel      *string
		LogPath       *string
	}
	// document is the whole. Where no ConfigPath is given containerd hands over
	// the options of its own configuration as they are, what is meant for itself
	// included.
	document struct {
		fields
		camelFields
		TypeUrl    string
		ConfigPath string
	}
)

// readFile reads the document of a config_path.
func readFile(path string) (Options, error) {
	if !filepath.IsAbs(path) {
		return Options{}, fmt.Errorf("config_path %q is not an absolute path", path)
	}
	// Non-blocking: a fifo must not keep a container from being made.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Options{}, fmt.Errorf("config_path: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return Options{}, fmt.Errorf("config_path %s is not a regular file (%v)", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return Options{}, fmt.Errorf("config_path: %w", err)
	}
	return parse(path, text)
}

// parse reads a document; where is what errors call it.
func parse(where string, text []byte) (Options, error) {
	if len(text) > maxDocument {
		return Options{}, fmt.Errorf("%s has more than %d bytes", where, maxDocument)
	}
	var d document
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return Options{}, explain(where, err)
	}
	switch {
	case d.ConfigPath != "":
		return Options{}, fmt.Errorf("%s: ConfigPath %q: a document cannot lead to another one", where, d.ConfigPath)
	case !slices.Contains(documentTypes, d.TypeUrl):
		return Options{}, fmt.Errorf("%s: TypeUrl %q is of another runtime's options: leave it out, or say %q", where, d.TypeUrl, documentTypes[1])
	}
	all := d.fields
	if err := merge(&all, fields(d.camelFields)); err != nil {
		return Options{}, fmt.Errorf("%s: %w", where, err)
	}
	return all.options(), nil
}

// merge adds what is set in the other spelling.
func merge(into *fields, from fields) error {
	to, other := reflect.ValueOf(into).Elem(), reflect.ValueOf(from)
	for i := range to.NumField() {
		switch {
		case other.Field(i).IsNil():
		case !to.Field(i).IsNil():
			f := to.Type().Field(i)
			return fmt.Errorf("%s and %s are the same key: say it once", f.Tag.Get("toml"), f.Name)
		default:
			to.Field(i).Set(other.Field(i))
		}
	}
	return nil
}

func (f fields) options() Options {
	return Options{
		Binary: value(f.BinaryName), Root: value(f.Root), SystemdCgroup: value(f.SystemdCgroup),
		NoPivotRoot: value(f.NoPivotRoot), NoNewKeyring: value(f.NoNewKeyring), IoUID: int(value(f.IoUid)), IoGID: int(value(f.IoGid)),
		CriuImagePath: value(f.CriuImagePath), CriuWorkPath: value(f.CriuWorkPath), ShimCgroup: value(f.ShimCgroup),
		LogLevel: value(f.LogLevel), LogPath: value(f.LogPath),
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// explain says in one line which line, which key and what of it.
func explain(where string, err error) error {
	var at *toml.DecodeError
	if !errors.As(err, &at) {
		return fmt.Errorf("%s: %w", where, err)
	}
	line, _ := at.Position()
	what := strings.TrimPrefix(at.Error(), "toml: ")
	key := strings.Join(at.Key(), ".")
	if unknown := new(toml.StrictMissingError); errors.As(err, &unknown) {
		return fmt.Errorf("%s, line %d: unknown key %q", where, line, key)
	}
	// "into struct field options.document.LogLevel of type string"
	if before, rest, ok := strings.Cut(what, " into struct field "); ok {
		_, kind, _ := strings.Cut(rest, " of type ")
		what = before + " into a " + kind
	}
	if key != "" {
		what = fmt.Sprintf("key %q: %s", key, what)
	}
	return fmt.Errorf("%s, line %d: %s", where, line, what)
}

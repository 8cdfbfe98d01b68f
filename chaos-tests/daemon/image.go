package daemon

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is the name under which the small busybox image is imported.
const Image = "perdure.test/busybox:latest"

// WriteImage writes an OCI image archive to w, as `ctr image import` takes it:
// one layer with the host's static busybox and a link for each of its applets.
func WriteImage(w io.Writer) error {
	layer, err := Layer()
	if err != nil {
		return fmt.Errorf("layer of the test image: %w", err)
	}
	config, err := json.Marshal(ocispec.Image{
		Platform: ocispec.Platform{Architecture: goruntime.GOARCH, OS: "linux"},
		Config:   ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/sh"}},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    describe(ocispec.MediaTypeImageConfig, config),
		Layers:    []ocispec.Descriptor{describe(ocispec.MediaTypeImageLayer, layer)},
	})
	if err != nil {
		return err
	}
	root := describe(ocispec.MediaTypeImageManifest, manifest)
	root.Annotations = map[string]string{"io.containerd.image.name": Image}
	index, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{root},
	})
	if err != nil {
		return err
	}
	a := archive{Writer: tar.NewWriter(w)}
	a.file(ocispec.ImageLayoutFile, 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	a.file(ocispec.ImageIndexFile, 0o644, index)
	for _, blob := range [][]byte{layer, config, manifest} {
		a.file("blobs/sha256/"+digest.FromBytes(blob).Encoded(), 0o644, blob)
	}
	return a.close()
}

func describe(mediaType string, blob []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(blob), Size: int64(len(blob))}
}

// users are those that tests name, each with a group of its name and number.
// There is none of number 1000: that is the one without an account.
var users = []struct {
	name string
	id   int
	home string
}{
	{"root", 0, "/root"}, {"daemon", 1, "/"}, {"bin", 2, "/"}, {"sys", 3, "/"},
	{"www-data", 33, "/"}, {"backup", 34, "/"}, {"nobody", 65534, "/"},
}

// accounts returns the files /etc/passwd and /etc/group.
func accounts() (passwd, group []byte) {
	for _, u := range users {
		passwd = fmt.Appendf(passwd, "%s:x:%d:%d:%s:%s:/bin/sh\n", u.name, u.id, u.id, u.name, u.home)
		group = fmt.Appendf(group, "%s:x:%d:\n", u.name, u.id)
	}
	return passwd, group
}

// Layer returns the tar of the image's file system.
func Layer() ([]byte, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("%w: install busybox-static", err)
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	var b bytes.Buffer
	a := archive{Writer: tar.NewWriter(&b)}
	for _, dir := range []string{"bin", "dev", "etc", "proc", "root", "run", "sys"} {
		a.entry(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil)
	}
	a.entry(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil)
	passwd, group := accounts()
	a.file("etc/passwd", 0o644, passwd)
	a.file("etc/group", 0o644, group)
	a.file("bin/busybox", 0o755, busybox)
	for name := range strings.FieldsSeq(string(applets)) {
		if name != "busybox" {
			a.entry(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	return b.Bytes(), a.close()
}

// archive is a tar being written; its first error is kept for close.
type archive struct {
	*tar.Writer
	err error
}

func (a *archive) file(name string, mode int64, data []byte) {
	a.entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}, data)
}

func (a *archive) entry(h tar.Header, data []byte) {
	if a.err == nil {
		a.err = a.WriteHeader(&h)
	}
	if a.err == nil {
		_, a.err = a.Write(data)
	}
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.Close()
}

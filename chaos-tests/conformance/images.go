package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	goruntime "runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"perdure/chaos-tests/daemon"
)

// names are the images that the suite pulls, by registry, repository and tag,
// and whether anything is run in them. The one it pulls by digest cannot be had
// without the original.
var names = []struct {
	host, repository, tag string
	system                bool
}{
	{"ghcr.io", "containerd/busybox", "1.36", true},
	{"ghcr.io", "containerd/volume-copy-up", "2.2", true},
	{"ghcr.io", "containerd/volume-ownership", "2.1", true},
	{"registry.k8s.io", "pause", "3.10.2", false},
	{"registry.k8s.io", "pause", "3.6", false},
	{"registry.k8s.io", "e2e-test-images/busybox", "1.29-2", false},
}

// platforms are those that the tests of multi-platform images ask for.
var platforms = []v1.Platform{
	{OS: "linux", Architecture: "amd64"},
	{OS: "linux", Architecture: "arm64", Variant: "v8"},
	{OS: "linux", Architecture: "s390x"},
	{OS: "linux", Architecture: "ppc64le"},
}

// file is one of a layer.
type file struct {
	name, text string
	mode       int64
}

// extras are what the originals hold beside busybox: a volume's directory, a
// bash, the set-uid program that the user namespace tests look for, and an nc
// that ends on SIGTERM though it is the first process of its container.
var extras = []file{
	{"bin/bash", "#!/bin/sh\nexec /bin/sh \"$@\"\n", 0o755},
	{"bin/nc", "#!/bin/sh\ntrap 'exit 143' TERM\n/bin/busybox nc \"$@\" &\nwait $!\n", 0o755},
	{"usr/bin/passwd", "#!/bin/sh\n", 0o4755},
	{"test_dir/test_file", "test_content\n", 0o644},
}

// layer returns a layer gzipped, as the public ones are.
func layer(tarred []byte) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(tarred)), nil
	}, tarball.WithMediaType(types.DockerLayer), tarball.WithCompressedCaching)
}

func layerOf(files ...file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text))}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return layer(b.Bytes())
}

// system returns the layers of an image in which programs are run.
func system() ([]v1.Layer, error) {
	tarred, err := daemon.Layer()
	if err != nil {
		return nil, err
	}
	base, err := layer(tarred)
	if err != nil {
		return nil, err
	}
	rest, err := layerOf(extras...)
	return []v1.Layer{base, rest}, err
}

// index makes the multi-platform image of one name; below are the layers for
// this machine. Each platform of each name has a layer of its own besides: tests
// look whether pulling one image brought another, and count sizes.
func index(name string, below []v1.Layer) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	for _, p := range platforms {
		own, err := layerOf(file{"etc/image", name + " " + p.Architecture + "\n", 0o644})
		if err != nil {
			return nil, err
		}
		layers := []v1.Layer{own}
		if p.Architecture == goruntime.GOARCH {
			layers = append(slices.Clone(below), own)
		}
		image, err := image(p, layers)
		if err != nil {
			return nil, fmt.Errorf("image %s for %s: %w", name, p.Architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			MediaType: types.DockerManifestSchema2, Platform: &p,
		}})
	}
	return index, nil
}

func image(p v1.Platform, layers []v1.Layer) (v1.Image, error) {
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.DockerManifestSchema2), layers...)
	if err != nil {
		return nil, err
	}
	made, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	c := made.DeepCopy()
	c.Architecture, c.OS, c.Variant = p.Architecture, p.OS, p.Variant
	c.Config = v1.Config{Env: []string{"PATH=/bin:/usr/bin"}, Cmd: []string{"sh"}}
	image, err = mutate.ConfigFile(image, c)
	return mutate.ConfigMediaType(image, types.DockerConfigJSON), err
}

// supported says whether the images have one for this machine.
func supported() bool {
	for _, p := range platforms {
		if p.Architecture == goruntime.GOARCH {
			return true
		}
	}
	return false
}

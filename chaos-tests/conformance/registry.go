package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// mirror is a proxy on the loopback that leads every registry the suite knows
// to one in this process, and refuses all else. It speaks HTTPS with a
// certificate that lives as long as it does.
type mirror struct {
	listener net.Listener // of the proxy
	trusted  string       // file with the certificate
	inner    *handover    // connections to the registry
}

// startMirror serves the images until ctx ends; its certificate goes to dir.
func startMirror(ctx context.Context, trusted string) (*mirror, error) {
	certificate, pemBytes, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("certificate of the registry: %w", err)
	}
	if err := os.WriteFile(trusted, pemBytes, 0o644); err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0)
	images := registry.New(registry.Logger(quiet))
	if err := fill(images); err != nil {
		return nil, fmt.Errorf("images of the suite: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mirror{listener: l, trusted: trusted, inner: newHandover(l.Addr())}
	secure := tls.NewListener(m.inner, &tls.Config{Certificates: []tls.Certificate{certificate}})
	inside := &http.Server{Handler: images, ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
	proxy := &http.Server{Handler: http.HandlerFunc(m.connect), ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
	go inside.Serve(secure) //nolint:errcheck // ends with ctx
	go proxy.Serve(l)       //nolint:errcheck // ends with ctx
	context.AfterFunc(ctx, func() {
		proxy.Close()
		inside.Close()
	})
	return m, nil
}

// env lets a process and its children reach the registry, and nothing else.
func (m *mirror) env() []string {
	return []string{"HTTPS_PROXY=http://" + m.listener.Addr().String(), "SSL_CERT_FILE=" + m.trusted}
}

// connect answers the proxy's one request, CONNECT host:port.
func (m *mirror) connect(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.Host)
	if r.Method != http.MethodConnect || !serves(host) {
		http.Error(w, "this proxy has none but the suite's registries", http.StatusForbidden)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		conn.Close()
		return
	}
	m.inner.give(&hijacked{Conn: conn, first: buffered.Reader})
}

func serves(host string) bool {
	for _, n := range names {
		if n.host == host {
			return true
		}
	}
	return false
}

// hijacked is a connection of which some bytes may have been read already.
type hijacked struct {
	net.Conn
	first *bufio.Reader
}

func (h *hijacked) Read(p []byte) (int, error) { return h.first.Read(p) }

// handover is a listener whose connections come from another one.
type handover struct {
	conns chan net.Conn
	ended context.Context
	end   context.CancelFunc
	addr  net.Addr
}

func newHandover(addr net.Addr) *handover {
	ctx, cancel := context.WithCancel(context.Background())
	return &handover{conns: make(chan net.Conn), ended: ctx, end: cancel, addr: addr}
}

func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.ended.Done():
		c.Close()
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ended.Done():
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error   { h.end(); return nil }
func (h *handover) Addr() net.Addr { return h.addr }

// newCertificate makes a certificate for all registries, signed by itself.
func newCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		template.DNSNames = append(template.DNSNames, n.host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, text, nil
}

// fill pushes every image of names.
func fill(registry http.Handler) error {
	system, err := system()
	if err != nil {
		return err
	}
	for _, n := range names {
		var below []v1.Layer
		if n.system {
			below = system
		}
		index, err := index(n.host+"/"+n.repository+":"+n.tag, below)
		if err != nil {
			return err
		}
		if err := pushIndex(registry, n.repository, n.tag, index); err != nil {
			return fmt.Errorf("%s/%s:%s: %w", n.host, n.repository, n.tag, err)
		}
	}
	return nil
}

func pushIndex(registry http.Handler, repository, tag string, index v1.ImageIndex) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range manifest.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			return err
		}
		if err := pushImage(registry, repository, image); err != nil {
			return err
		}
	}
	return pushManifest(registry, repository, tag, index)
}

func pushImage(registry http.Handler, repository string, image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		blob, err := l.Compressed()
		if err != nil {
			return err
		}
		if err := pushBlob(registry, repository, digest, blob); err != nil {
			return err
		}
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	digest, err := image.ConfigName()
	if err != nil {
		return err
	}
	if err := pushBlob(registry, repository, digest, bytes.NewReader(config)); err != nil {
		return err
	}
	digest, err = image.Digest()
	if err != nil {
		return err
	}
	return pushManifest(registry, repository, digest.String(), image)
}

func pushBlob(registry http.Handler, repository string, digest v1.Hash, blob io.Reader) error {
	path := fmt.Sprintf("/v2/%s/blobs/uploads/?digest=%s", repository, digest)
	return push(registry, httptest.NewRequest(http.MethodPost, path, blob))
}

// tagged is what an index and an image have in common here.
type tagged interface {
	RawManifest() ([]byte, error)
	MediaType() (types.MediaType, error)
}

func pushManifest(registry http.Handler, repository, reference string, m tagged) error {
	raw, err := m.RawManifest()
	if err != nil {
		return err
	}
	mediaType, err := m.MediaType()
	if err != nil {
		return err
	}
	r := httptest.NewRequest(http.MethodPut, fmt.Sprintf("/v2/%s/manifests/%s", repository, reference), bytes.NewReader(raw))
	r.Header.Set("Content-Type", string(mediaType))
	return push(registry, r)
}

func push(registry http.Handler, r *http.Request) error {
	w := httptest.NewRecorder()
	registry.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		return errors.New(r.Method + " " + r.URL.Path + ": " + w.Body.String())
	}
	return nil
}

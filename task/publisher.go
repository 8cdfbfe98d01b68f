package task

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"perdure/store"
)

// NewPublisher forwards events to containerd's ttrpc events service at a unix
// socket. An empty address means that nobody wants events (CRI-O): then each
// is taken as delivered.
func NewPublisher(address string) Publisher { return &forwarder{address: address} }

// forwarder keeps one connection, dialled again after it has ended.
type forwarder struct {
	address string

	mu     sync.Mutex
	client *ttrpc.Client
}

func (f *forwarder) Publish(ctx context.Context, namespace string, e store.Event) error {
	if f.address == "" {
		return nil
	}
	client, err := f.connected(ctx)
	if err != nil {
		return err
	}
	_, err = events.NewTTRPCEventsClient(client).Forward(ctx, &events.ForwardRequest{Envelope: &types.Envelope{
		Timestamp: timestamppb.New(e.At),
		Namespace: namespace,
		Topic:     e.Topic,
		Event:     &anypb.Any{TypeUrl: e.TypeURL, Value: e.Value},
	}})
	if err != nil {
		f.drop(client)
		return fmt.Errorf("forward %s to containerd: %w", e.Topic, err)
	}
	return nil
}

func (f *forwarder) connected(ctx context.Context) (*ttrpc.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client != nil {
		return f.client, nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", f.address)
	if err != nil {
		return nil, fmt.Errorf("reach containerd's events service: %w", err)
	}
	f.client = ttrpc.NewClient(conn)
	return f.client, nil
}

// drop forgets a connection after an error: what ended it is unknown, and a
// new one costs little.
func (f *forwarder) drop(client *ttrpc.Client) {
	f.mu.Lock()
	if f.client == client {
		f.client = nil
	}
	f.mu.Unlock()
	_ = client.Close()
}

package controller

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned/scheme"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
)

// worksClient is a typed client that parses a watch event twice: to validate it, and for its content.
// The decoder of client-go parses it for its frame, its type and its kind too.
type worksClient struct {
	workclient.ManifestWorkInterface
	rest rest.Interface
}

// Watch implements [client].
func (c worksClient) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	body, err := c.rest.Get().Resource("manifestworks").VersionedParams(&options, scheme.ParameterCodec).
		SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, err
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "WatchDecoding")
	return watch.NewStreamWatcher(&workDecoder{body: body, lines: bufio.NewReaderSize(body, 64<<10)}, reporter), nil
}

// workDecoder decodes watch events of works; it is a [watch.Decoder].
type workDecoder struct {
	body  io.Closer
	lines *bufio.Reader
	line  []byte
}

// Close implements [watch.Decoder].
func (d *workDecoder) Close() { _ = d.body.Close() }

// Decode implements [watch.Decoder]. API servers send an event as one line; more lines are read as
// long as there is no whole event.
func (d *workDecoder) Decode() (watch.EventType, runtime.Object, error) {
	d.line = d.line[:0]
	for {
		for more := true; more; {
			part, err := d.lines.ReadSlice('\n')
			d.line = append(d.line, part...)
			more = errors.Is(err, bufio.ErrBufferFull)
			if err != nil && !more {
				return "", nil, cutOff(d.line, err)
			}
		}
		eventType, object, err := decodeEvent(d.line)
		if err == nil || json.Valid(d.line) {
			return eventType, object, err
		}
	}
}

// cutOff returns the error of a stream that has ended with line.
func cutOff(line []byte, err error) error {
	if errors.Is(err, io.EOF) && slices.ContainsFunc(line, func(b byte) bool { return b > ' ' }) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// decodeEvent decodes an event about a work, or one that ends a watch.
func decodeEvent(data []byte) (watch.EventType, runtime.Object, error) {
	var event struct {
		Type   watch.EventType      `json:"type"`
		Object *workv1.ManifestWork `json:"object"`
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(data, &event)
	if event.Type == watch.Error {
		var failure struct {
			Object *metav1.Status `json:"object"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &failure); err != nil || failure.Object == nil {
			return "", nil, fmt.Errorf("watch event of an error: %w", err)
		}
		return watch.Error, failure.Object, nil
	}
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
	default:
		err = errors.Join(err, fmt.Errorf("watch event of the unknown type %q", event.Type))
	}
	if err == nil && event.Object == nil {
		err = errors.New("watch event without an object")
	}
	if err != nil {
		return "", nil, err
	}
	event.Object.TypeMeta = metav1.TypeMeta{} // as the typed client returns it
	return event.Type, event.Object, nil
}

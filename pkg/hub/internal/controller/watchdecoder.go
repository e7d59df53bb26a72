package controller

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/client/clientset/versioned/scheme"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// ParsedOnce returns client with watches of T that parse an event once. The decoder of client-go parses it
// for its frame, its type, its kind, to validate it, and for its content.
func ParsedOnce[T Object, L runtime.Object](client listwatch.Client[L], rest rest.Interface, resource string) listwatch.Client[L] {
	return onceClient[T, L]{client, rest, resource}
}

type onceClient[T Object, L runtime.Object] struct {
	listwatch.Client[L]
	rest     rest.Interface
	resource string
}

// Watch implements [listwatch.Client].
func (c onceClient[T, L]) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	body, err := c.rest.Get().Resource(c.resource).VersionedParams(&options, scheme.ParameterCodec).
		SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, err
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "WatchDecoding")
	return watch.NewStreamWatcher(&eventDecoder[T]{body: body, events: newDecoder(body)}, reporter), nil
}

// newDecoder returns a decoder of what an API server sends, as lenient as those of Kubernetes.
func newDecoder(r io.Reader) *jsontext.Decoder {
	return jsontext.NewDecoder(bufio.NewReaderSize(r, 64<<10), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// eventDecoder decodes watch events of T; it is a [watch.Decoder].
type eventDecoder[T Object] struct {
	body   io.Closer
	events *jsontext.Decoder
}

// Close implements [watch.Decoder].
func (d *eventDecoder[T]) Close() { _ = d.body.Close() }

// Decode implements [watch.Decoder].
func (d *eventDecoder[T]) Decode() (watch.EventType, runtime.Object, error) {
	eventType, object, err := decodeEvent[T](d.events)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.ErrUnexpectedEOF // which StreamWatcher compares
	}
	return eventType, object, err
}

// decodeEvent decodes an event about an object, or one that ends a watch. It returns [io.EOF] where there is none.
func decodeEvent[T Object](d *jsontext.Decoder) (eventType watch.EventType, object runtime.Object, err error) {
	var early jsontext.Value // the object, if it comes before the type
	if err := expect(d, '{'); err != nil {
		return "", nil, err
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return "", nil, err
		}
		switch name := name.String(); {
		case name == "type":
			err = json.UnmarshalDecode(d, &eventType)
		case name == "object" && eventType == "":
			early, err = d.ReadValue()
			early = early.Clone()
		case name == "object":
			object, err = decodeObject[T](d, eventType)
		default:
			err = d.SkipValue()
		}
		if err != nil {
			return "", nil, fmt.Errorf("watch event: %w", err)
		}
	}
	if err := expect(d, '}'); err != nil {
		return "", nil, err
	}
	if early != nil {
		object, err = decodeObject[T](newDecoder(bytes.NewReader(early)), eventType)
	}
	if err == nil && object == nil {
		err = fmt.Errorf("watch event of type %q without an object", eventType)
	}
	return eventType, object, err
}

// decodeObject decodes the object of an event of a type; nil for null.
func decodeObject[T Object](d *jsontext.Decoder, eventType watch.EventType) (runtime.Object, error) {
	switch eventType {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		var object, none T
		if err := json.UnmarshalDecode(d, &object); err != nil || object == none {
			return nil, err
		}
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as the typed client returns it
		return object, nil
	case watch.Error:
		var status *metav1.Status
		if err := json.UnmarshalDecode(d, &status); err != nil || status == nil {
			return nil, err
		}
		return status, nil
	default:
		return nil, fmt.Errorf("its type %q is unknown", eventType)
	}
}

// expect reads one delimiter.
func expect(d *jsontext.Decoder, want jsontext.Kind) error {
	token, err := d.ReadToken()
	if err == nil && token.Kind() != want {
		err = fmt.Errorf("%v in place of %v", token, want)
	}
	return err
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// acceptMetadata asks for a list without specs and statuses.
const acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// listMetadata lists the versions of all objects of a resource, and calls progress whenever a part of the
// answer has come. It keeps one object at a time: as objects, the list would take more memory than the
// works that a hub holds.
func listMetadata(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource, progress func()) (_ *listing, err error) {
	body, err := client.Get().AbsPath("/apis", resource.Group, resource.Version, resource.Resource).SetHeader("Accept", acceptMetadata).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	return readListing(progressReader{body, progress})
}

// progressReader calls progress after each read that brings something.
type progressReader struct {
	io.Reader
	progress func()
}

// Read implements [io.Reader].
func (r progressReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.progress()
	}
	return n, err
}

// readListing reads the JSON of a whole list. Whatever is not one is an error, also if it ends early.
func readListing(r io.Reader) (*listing, error) {
	l := &listing{objects: make(map[types.NamespacedName]version)}
	d := newDecoder(r)
	if err := expect(d, '{'); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	var whole, items bool
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		switch key.String() {
		case "metadata":
			var m metav1.ListMeta
			err = json.UnmarshalDecode(d, &m)
			l.resourceVersion = m.ResourceVersion
			whole = m.Continue == "" && m.ResourceVersion != ""
		case "items":
			items, err = true, l.readItems(d)
		default:
			err = d.SkipValue()
		}
		if err != nil {
			return nil, err
		}
	}
	if err := expect(d, '}'); err != nil {
		return nil, err
	}
	if !whole || !items {
		return nil, errIncomplete
	}
	return l, nil
}

// errIncomplete says that an API server has left something out of a list.
var errIncomplete = errors.New("the answer is incomplete")

// readItems reads the objects of a list; API servers may write null for none.
func (l *listing) readItems(d *jsontext.Decoder) error {
	if d.PeekKind() == 'n' {
		return d.SkipValue()
	}
	if err := expect(d, '['); err != nil {
		return err
	}
	namespaces := make(map[string]string) // one string for all objects of each
	for d.PeekKind() == '{' {
		var item struct {
			Metadata struct {
				Namespace       string    `json:"namespace"`
				Name            string    `json:"name"`
				UID             types.UID `json:"uid"`
				ResourceVersion string    `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.UnmarshalDecode(d, &item); err != nil {
			return err
		}
		m := &item.Metadata
		if m.Name == "" || m.ResourceVersion == "" {
			return errors.New("an object of the list has no name or no resourceVersion")
		}
		namespace, ok := namespaces[m.Namespace]
		if !ok {
			namespace = m.Namespace
			namespaces[namespace] = namespace
		}
		l.objects[types.NamespacedName{Namespace: namespace, Name: m.Name}] = version{uid: m.UID, resourceVersion: m.ResourceVersion}
	}
	return expect(d, ']')
}

// expect reads one delimiter.
func expect(d *jsontext.Decoder, want jsontext.Kind) error {
	token, err := d.ReadToken()
	if err == nil && token.Kind() != want {
		err = fmt.Errorf("%v in place of %v", token, want)
	}
	return err
}

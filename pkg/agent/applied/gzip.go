package applied

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
)

const (
	// gzipPrefix stands before packed text: gzip in base64. JSON never begins so.
	gzipPrefix = "gzip:"
	// maxUnpacked bounds what packed text may unpack to: a work has at most
	// 500 KiB of manifests, and what is kept of it is far below.
	maxUnpacked = 4 * 1024 * 1024
)

// pack gives plain as text, compressed when it has at least threshold bytes. The
// same plain always gives the same text.
func pack(plain []byte, threshold int) (string, error) {
	if len(plain) < threshold {
		return string(plain), nil
	}
	if len(plain) > maxUnpacked {
		return "", fmt.Errorf("%d bytes are more than the %d that can be read again", len(plain), maxUnpacked)
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(plain); err != nil {
		return "", fmt.Errorf("compress: %w", err)
	}
	if err := writer.Close(); err != nil {
		return "", fmt.Errorf("compress: %w", err)
	}
	return gzipPrefix + base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

// unpack is the inverse of pack. It never gives more than maxUnpacked bytes of
// packed text.
func unpack(text string) ([]byte, error) {
	packed, ok := strings.CutPrefix(text, gzipPrefix)
	if !ok {
		return []byte(text), nil
	}
	reader, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	if err != nil {
		return nil, fmt.Errorf("uncompress: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(reader, maxUnpacked+1))
	if err != nil {
		return nil, fmt.Errorf("uncompress: %w", err)
	}
	if len(plain) > maxUnpacked {
		return nil, fmt.Errorf("it unpacks to more than %d bytes", maxUnpacked)
	}
	return plain, nil
}

package applied

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// gzipPrefix marks compressed text: gzip in base64. JSON never begins with it.
	gzipPrefix = "gzip:"
	// maxPlain is the maximum size in bytes of uncompressed text. A work has at most 500 KiB of
	// manifests, and its text is much smaller.
	maxPlain = 4 * 1024 * 1024
)

// compress returns plain as text, compressed if it has at least threshold bytes. It is
// deterministic.
func compress(plain []byte, threshold int) (string, error) {
	if len(plain) < threshold {
		return string(plain), nil
	}
	if len(plain) > maxPlain {
		return "", fmt.Errorf("%d bytes exceed the maximum of %d", len(plain), maxPlain)
	}
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	_, err := writer.Write(plain)
	if err = errors.Join(err, writer.Close()); err != nil {
		return "", fmt.Errorf("compress: %w", err)
	}
	return gzipPrefix + base64.StdEncoding.EncodeToString(compressed.Bytes()), nil
}

// uncompress reverses compress. It returns an error if the result exceeds maxPlain bytes.
func uncompress(text string) ([]byte, error) {
	compressed, ok := strings.CutPrefix(text, gzipPrefix)
	if !ok {
		return []byte(text), nil
	}
	reader, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(compressed)))
	if err != nil {
		return nil, fmt.Errorf("uncompress: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(reader, maxPlain+1))
	if err != nil {
		return nil, fmt.Errorf("uncompress: %w", err)
	}
	if len(plain) > maxPlain {
		return nil, fmt.Errorf("the uncompressed text exceeds %d bytes", maxPlain)
	}
	return plain, nil
}

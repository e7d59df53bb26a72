package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path"
	"runtime"
	"time"
)

// registry serves one image, made of this program, under every name and tag, as the OCI distribution specification says for pulls. Its
// digests are those of no image that the node has.
func registry(args []string) error {
	flags := flag.NewFlagSet("registry", flag.ContinueOnError)
	address := flags.String("listen", "127.0.0.1:5000", "address of the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	pulled, manifest, err := image(program)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: *address, ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// /v2/NAME/manifests/REFERENCE, /v2/NAME/blobs/DIGEST, or /v2/, which says that this is a registry.
		if r.URL.Path == "/v2/" {
			return
		}
		digest := path.Base(r.URL.Path)
		if path.Base(path.Dir(r.URL.Path)) == "manifests" {
			digest = manifest
			w.Header().Set("Content-Type", manifestType)
		}
		data, known := pulled[digest]
		if !known {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Docker-Content-Digest", digest)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})}
	return server.ListenAndServe()
}

// manifestType is the media type of a manifest, from the OCI image specification.
const manifestType = "application/vnd.oci.image.manifest.v1+json"

// image returns what belongs to an image of program, by digest, and the digest of its manifest.
func image(program []byte) (map[string][]byte, string, error) {
	layer, err := layer(program)
	if err != nil {
		return nil, "", err
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(layer); err != nil {
		return nil, "", err
	}
	if err := zip.Close(); err != nil {
		return nil, "", err
	}
	pulled := map[string][]byte{}
	add := func(data []byte) string {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		pulled[digest] = data
		return digest
	}
	type object map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": runtime.GOOS,
		"config": object{"Env": []string{"PATH=/bin"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return nil, "", err
	}
	manifest, err := json.Marshal(object{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": object{"mediaType": "application/vnd.oci.image.config.v1+json", "size": len(config), "digest": add(config)},
		"layers": []object{{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "size": packed.Len(), "digest": add(packed.Bytes())}},
	})
	return pulled, add(manifest), err
}

// layer returns a tar archive of the files of the image: program by its names.
func layer(program []byte) ([]byte, error) {
	var archive bytes.Buffer
	files := tar.NewWriter(&archive)
	if err := files.WriteHeader(&tar.Header{Name: "bin/workload", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return nil, err
	}
	if _, err := files.Write(program); err != nil {
		return nil, err
	}
	for _, name := range []string{"bin/true", "bin/sleep"} {
		if err := files.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: "bin/workload", Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	err := files.Close()
	return archive.Bytes(), err
}

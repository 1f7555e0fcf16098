package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"
)

const fileSize = 128 << 20 // bytes that are sent in one request

// transfer sends a file again and again, one way or the other.
func transfer(once func(c net.Conn, in *bufio.Reader, t *target, path string) error) func(t *target) ([]figure, error) {
	return func(t *target) ([]figure, error) {
		conn, err := net.Dial("tcp", t.addr)
		if err != nil {
			return nil, err
		}
		defer func() { _ = conn.Close() }()
		in := bufio.NewReaderSize(conn, 4<<10)
		path := t.base + "/v2/fs/file?path=" + url.QueryEscape(filepath.Join(t.dir, "file"))
		_ = conn.SetDeadline(time.Now().Add(answerBound))
		for range 2 { // the file is there, and its pages
			if err := upload(conn, in, t, path); err != nil {
				return nil, err
			}
		}
		before, began, n := t.usage(), time.Now(), 0
		for ; time.Since(began) < measured; n++ {
			if err := once(conn, in, t, path); err != nil {
				return nil, err
			}
		}
		took, now := time.Since(began), t.usage()
		sent := float64(n) * fileSize
		return []figure{
			{sent / 1e6 / took.Seconds(), "MB/s"},
			{ms(now.cpu-before.cpu) / (sent / 1e9), "cpu-ms/GB"},
			{ms(now.hub-before.hub) / (sent / 1e9), "hub-cpu-ms/GB"},
		}, nil
	}
}

var content = make([]byte, 256<<10)

func upload(conn net.Conn, in *bufio.Reader, t *target, path string) error {
	if _, err := fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s\r\n", path, t.addr, fileSize, t.auth); err != nil {
		return err
	}
	for range fileSize / len(content) {
		if _, err := conn.Write(content); err != nil {
			return err
		}
	}
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("upload: %s: %s", answer.Status, said)
	}
	return err
}

func download(conn net.Conn, in *bufio.Reader, t *target, path string) error {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, t.addr, t.auth); err != nil {
		return err
	}
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, answer.Body, make([]byte, len(content)))
	if err == nil && (answer.StatusCode != http.StatusOK || n != fileSize) {
		err = fmt.Errorf("download: %s, %d bytes", answer.Status, n)
	}
	return err
}

//! The bytes of one file as UTF-8 text: opened, decompressed, decoded, in one buffer that a format cuts its records from.

use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use flate2::bufread::MultiGzDecoder;
use memchr::{memchr, memchr2};
use penstock_crds::connectors::Compression;
use std::{
    fs::{File, Metadata},
    io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom},
    path::Path,
};

/// How much is read at once; little in tests, so that records cross blocks.
pub(super) const BLOCK: usize = if cfg!(test) { 256 } else { 256 * 1024 };
/// How much the decompressors read at once.
const COMPRESSED_BLOCK: usize = 64 * 1024;
/// Room for one character, however it is encoded.
const CHARACTER: usize = 16;
/// Stands where the file has bytes that its encoding does not know. It is no UTF-8, so that the record fails.
const UNDECODABLE: u8 = 0xff;

/// Text of a file: a window that moves forward.
pub(super) struct Source {
    input: Input,
    /// Absent for UTF-8, which is checked record by record and not decoded.
    decoder: Option<Decoder>,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    /// Where the window begins in the (decompressed, decoded) file.
    offset: u64,
    /// The buffer does not grow beyond this.
    limit: usize,
    ended: bool,
    /// An error met behind text that has still to be handed out.
    failure: Option<io::Error>,
}

/// A file that counts what was read of it.
struct Counted {
    file: File,
    read: u64,
}

enum Input {
    Plain(Counted),
    Gzip(Box<MultiGzDecoder<BufReader<Counted>>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<Counted>>>),
}

struct Decoder {
    decoder: encoding_rs::Decoder,
    encoded: Vec<u8>,
    begin: usize,
    end: usize,
    ended: bool,
    finished: bool,
}

/// The compression of a file by the ending of its name.
fn by_name(path: &Path) -> Compression {
    match path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        _ => Compression::None,
    }
}

impl Source {
    /// Opens a file and passes over its byte order mark. `max_record` bytes can be in the window at once.
    pub(super) fn open(path: &Path, compression: Compression, encoding: &'static Encoding, max_record: usize) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        let file = Counted { file, read: 0 };
        let compressed = |file| BufReader::with_capacity(COMPRESSED_BLOCK, file);
        let input = match if compression == Compression::Auto { by_name(path) } else { compression } {
            Compression::Auto | Compression::None => Input::Plain(file),
            Compression::Gzip => Input::Gzip(Box::new(MultiGzDecoder::new(compressed(file)))),
            Compression::Zstd => Input::Zstd(Box::new(zstd::Decoder::with_buffer(compressed(file))?)),
        };
        let mut source = Self {
            input,
            decoder: None,
            buffer: vec![0; BLOCK],
            begin: 0,
            end: 0,
            offset: 0,
            limit: max_record.saturating_add(BLOCK),
            ended: false,
            failure: None,
        };
        source.read_mark(encoding);
        Ok(source)
    }

    /// Reads the first bytes: a byte order mark wins over the configured encoding.
    fn read_mark(&mut self, encoding: &'static Encoding) {
        while self.end < 3 && !self.ended && self.failure.is_none() {
            match self.input.read(&mut self.buffer[self.end..BLOCK]) {
                Ok(read) => {
                    self.end += read;
                    self.ended = read == 0;
                }
                Err(error) => self.failure = Some(error),
            }
        }
        let (encoding, mark) = Encoding::for_bom(&self.buffer[..self.end]).unwrap_or((encoding, 0));
        if encoding == UTF_8 {
            // the mark stays part of the offset, so that offsets are places in the file
            return self.consume(mark);
        }
        debug_assert!(mark == 0 || encoding == UTF_16LE || encoding == UTF_16BE);
        self.decoder = Some(Decoder {
            decoder: encoding.new_decoder_without_bom_handling(),
            encoded: std::mem::replace(&mut self.buffer, vec![0; BLOCK]),
            begin: mark,
            end: self.end,
            ended: self.ended,
            finished: false,
        });
        (self.end, self.ended) = (0, false);
    }

    /// The encoding of the file.
    pub(super) fn encoding(&self) -> &'static str {
        self.decoder.as_ref().map_or(UTF_8, |decoder| decoder.decoder.encoding()).name()
    }

    /// What is known of the open file.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.input.counted().file.metadata()
    }

    /// Bytes of the file itself (compressed, encoded) that were read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.input.counted().read
    }

    /// The text that was read and not yet consumed.
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// Whether nothing follows behind the window.
    pub(super) fn ended(&self) -> bool {
        self.ended && self.failure.is_none()
    }

    /// Where the window begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Moves the beginning of the window.
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.begin);
        self.begin += bytes;
        self.offset += bytes as u64;
    }

    /// Reads on until the window is twice as long, so that looking at it again from its beginning costs little in sum.
    ///
    /// # Errors
    /// The file cannot be read on. What was read before has been in the window.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.make_room();
        let wanted = self.end * 2;
        while !self.ended {
            match self.read_some() {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if self.end == 0 => return Err(error),
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
            if self.end >= wanted.min(self.buffer.len() - CHARACTER) {
                break;
            }
        }
        Ok(())
    }

    fn make_room(&mut self) {
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        let wanted = (self.end * 2).min(self.limit).max(BLOCK).max(self.end + 2 * CHARACTER);
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted, 0);
        } else if wanted == BLOCK && self.buffer.len() > BLOCK {
            self.buffer.truncate(BLOCK);
            self.buffer.shrink_to_fit();
        }
    }

    fn read_some(&mut self) -> io::Result<usize> {
        let room = &mut self.buffer[self.end..];
        match &mut self.decoder {
            None => self.input.read(room),
            Some(decoder) => decoder.read(&mut self.input, room),
        }
    }

    /// Passes over the rest of the line, however long it is. Without `lone_cr` only LF ends a line.
    pub(super) fn skip_line(&mut self, lone_cr: bool) -> io::Result<()> {
        loop {
            let window = self.window();
            let (length, found) = (window.len(), if lone_cr { memchr2(b'\n', b'\r', window) } else { memchr(b'\n', window) });
            let (consumed, done) = match found {
                Some(at) if window[at] == b'\n' => (at + 1, true),
                Some(at) if at + 1 < length => (at + 1 + usize::from(window[at + 1] == b'\n'), true),
                Some(at) if self.ended() => (at + 1, true),
                // whether LF follows is seen when more was read
                Some(at) => (at, false),
                None => (length, false),
            };
            self.consume(consumed);
            if done {
                return Ok(());
            }
            if self.window().is_empty() && self.ended() {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// Goes to an offset at or behind the present one.
    ///
    /// # Errors
    /// The file cannot be read on, or ends before.
    pub(super) fn go_to(&mut self, offset: u64) -> io::Result<()> {
        loop {
            let ahead = offset.checked_sub(self.offset).ok_or(ErrorKind::InvalidInput)?;
            let here = self.window().len();
            if ahead <= here as u64 {
                self.consume(ahead as usize);
                return Ok(());
            }
            if let (Input::Plain(input), None) = (&mut self.input, &self.decoder)
                && offset <= input.file.metadata()?.len()
            {
                input.file.seek(SeekFrom::Start(offset))?;
                input.read = offset;
                (self.begin, self.end, self.offset, self.ended, self.failure) = (0, 0, offset, false, None);
                return Ok(());
            }
            if self.ended() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.consume(here);
            self.fill()?;
        }
    }
}

impl Input {
    fn counted(&self) -> &Counted {
        match self {
            Self::Plain(input) => input,
            Self::Gzip(input) => input.get_ref().get_ref(),
            Self::Zstd(input) => input.get_ref().get_ref(),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.read(buffer),
            Self::Gzip(input) => input.read(buffer),
            Self::Zstd(input) => input.read(buffer),
        }
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                answer => return answer.inspect(|read| self.read += *read as u64),
            }
        }
    }
}

impl Decoder {
    /// Decodes some text; nothing only at the end of the file.
    fn read(&mut self, input: &mut Input, out: &mut [u8]) -> io::Result<usize> {
        let room = out.len() - 1;
        while !self.finished {
            let (result, read, written) =
                self.decoder.decode_to_utf8_without_replacement(&self.encoded[self.begin..self.end], &mut out[..room], self.ended);
            self.begin += read;
            match result {
                DecoderResult::Malformed(..) => {
                    out[written] = UNDECODABLE;
                    return Ok(written + 1);
                }
                DecoderResult::OutputFull => return Ok(written),
                DecoderResult::InputEmpty if self.ended => {
                    self.finished = true;
                    return Ok(written);
                }
                DecoderResult::InputEmpty if written > 0 => return Ok(written),
                DecoderResult::InputEmpty => {}
            }
            (self.begin, self.end) = (0, input.read(&mut self.encoded)?);
            self.ended = self.end == 0;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("write");
        encoder.finish().expect("finish")
    }

    fn source(name: &str, content: &[u8], encoding: &'static Encoding) -> (tempfile::TempDir, io::Result<Source>) {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("file");
        let source = Source::open(&path, Compression::Auto, encoding, 1024);
        (directory, source)
    }

    /// All text of a file, and the error at its end.
    fn text(name: &str, content: &[u8], encoding: &'static Encoding) -> (Vec<u8>, Option<io::Error>) {
        let (_directory, source) = source(name, content, encoding);
        let mut source = source.expect("open");
        let mut all = Vec::new();
        loop {
            all.extend_from_slice(source.window());
            source.consume(source.window().len());
            if source.ended() {
                return (all, None);
            }
            if let Err(error) = source.fill() {
                return (all, Some(error));
            }
        }
    }

    #[test]
    fn files_are_decompressed_by_their_ending_members_and_frames_one_after_the_other() {
        let long = "0123456789".repeat(200);
        let members = [gz(b"one\n"), gz(long.as_bytes())].concat();
        for name in ["x.gz", "X.CSV.GZ"] {
            assert_eq!(text(name, &members, UTF_8).0, format!("one\n{long}").as_bytes());
        }
        let frames = [&b"one\n"[..], long.as_bytes()].map(|part| zstd::encode_all(part, 1).expect("zstd")).concat();
        assert_eq!(text("x.zst", &frames, UTF_8).0, format!("one\n{long}").as_bytes());
        assert_eq!(text("x.csv", b"", UTF_8).0, b"");
    }

    #[test]
    fn what_a_damaged_file_still_gives_comes_before_its_error() {
        let lines: String = (0..2000).map(|number| format!("line {number}\n")).collect();
        let whole = gz(lines.as_bytes());
        let (read, error) = text("x.gz", &whole[..whole.len() / 2], UTF_8);
        assert!(lines.as_bytes().starts_with(&read) && read.len() > 1000, "{}", read.len());
        assert_eq!(error.expect("cut off").kind(), ErrorKind::UnexpectedEof);
        let mut frame = zstd::encode_all(lines.as_bytes(), 1).expect("zstd");
        frame.truncate(frame.len() - 3);
        assert!(text("x.zst", &frame, UTF_8).1.is_some());
    }

    #[test]
    fn a_byte_order_mark_wins_over_the_encoding() {
        let utf_16 =
            |text: &str, mark: &[u8], bytes: fn(u16) -> [u8; 2]| [mark, &text.encode_utf16().flat_map(bytes).collect::<Vec<_>>()].concat();
        let wanted = "é,😀\n".repeat(100);
        for (content, encoding) in [
            (utf_16(&wanted, b"\xff\xfe", u16::to_le_bytes), UTF_8),
            (utf_16(&wanted, b"\xfe\xff", u16::to_be_bytes), encoding_rs::WINDOWS_1252),
            (utf_16(&wanted, b"", u16::to_be_bytes), UTF_16BE),
            ([b"\xef\xbb\xbf", wanted.as_bytes()].concat(), UTF_16LE),
            (wanted.as_bytes().to_vec(), UTF_8),
        ] {
            assert_eq!(text("x.csv", &content, encoding).0, wanted.as_bytes());
        }
        assert_eq!(text("x.csv", b"caf\xe9", encoding_rs::WINDOWS_1252).0, "café".as_bytes());
    }

    #[test]
    fn bytes_that_the_encoding_does_not_know_are_no_utf_8() {
        let lone_surrogate = [b'a', 0, 0, 0xd8, b'b', 0];
        assert_eq!(text("x.csv", &lone_surrogate, UTF_16LE).0, b"a\xffb");
        assert_eq!(text("x.csv", b"a\x00\x00", UTF_16LE).0, b"a\xff");
    }

    proptest! {
        /// Wherever one goes, what follows is what follows there when one reads up to it.
        #[test]
        fn every_offset_is_found_again(lines in prop::collection::vec("[aé😀]{0,90}", 0..30), cut in 0.0..=1.0, variant in 0..4) {
            let content = lines.join("\n");
            let (name, bytes, encoding) = match variant {
                0 => ("x", content.clone().into_bytes(), UTF_8),
                1 => ("x.gz", gz(content.as_bytes()), UTF_8),
                2 => ("x", [b"\xef\xbb\xbf", content.as_bytes()].concat(), UTF_8),
                _ => ("x", content.encode_utf16().flat_map(u16::to_le_bytes).collect(), UTF_16LE),
            };
            let (_directory, source) = source(name, &bytes, encoding);
            let mut source = source.expect("open");
            let mark = source.offset();
            let skip = (content.len() as f64 * cut) as usize;
            source.go_to(mark + skip as u64).expect("within the file");
            let mut rest = Vec::new();
            while !(source.ended() && source.window().is_empty()) {
                rest.extend_from_slice(source.window());
                source.consume(source.window().len());
                source.fill().expect("read");
            }
            prop_assert_eq!(&rest, &content.as_bytes()[skip..]);
            prop_assert!(source.go_to(mark + content.len() as u64 + 1).is_err());
        }
    }
}

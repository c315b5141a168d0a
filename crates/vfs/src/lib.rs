//! Dentries, inodes, files and descriptor tables.
